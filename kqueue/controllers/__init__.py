"""One reconciler per kind.  Each keeps one kind true to what is wanted; no algorithm longer than a screen."""
