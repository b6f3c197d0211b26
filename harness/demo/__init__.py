"""What ``make demo`` shows: a controller cluster of real processes that loses masters and its active controller."""
