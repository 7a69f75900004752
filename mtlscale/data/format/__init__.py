"""The on-disk form of prepared data: columns, manifest, encoded images, token ids."""
