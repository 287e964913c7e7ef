"""The shell of the admission cycle: heads, snapshot, plan, assume, patch, requeue.  The core decides."""
