"""The policies of joint placement, one in each file; `kqueue.core.joint.registry` has their names."""
