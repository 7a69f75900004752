"""Steps of tables with several targets in a row: targets, splits, inputs, and what `mtlscale inspect` says."""
