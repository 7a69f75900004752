"""Networks whose tasks branch at a stage, given or searched, one file per architecture."""
