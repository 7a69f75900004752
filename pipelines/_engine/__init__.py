"""How rows are computed: in this process, in threads or by Ray Data, and the fingerprint of a source."""
