"""Things that several tests stand on."""
