"""Records: one function per statement file, rows in and values out. They hold no state and decide nothing."""
