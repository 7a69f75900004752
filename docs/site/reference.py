def filled(m): return m
