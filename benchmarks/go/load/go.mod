module quorate/load

go 1.22
