"""An experiment's whole report: its page, its files, its JSON, and the formats of the command line."""
