"""What clients ask for: generators of operations by name, as checkers know them. Users' own are entry points."""
