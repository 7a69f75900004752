"""Hard parameter sharing and its variants, one file per architecture."""
