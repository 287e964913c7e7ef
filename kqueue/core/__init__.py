"""What is decided: values in, values out.  No I/O, no clock, no chance, no logging."""
