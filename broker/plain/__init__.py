"""Groups without a controller: a master that is configured, slaves that copy its log by the default HA protocol."""
