"""The processes that serve a cluster: the controller and the webhooks.

`operator.py` puts a controller process together, `process.py` runs it until a signal comes, `controllers.py` lists the
controllers, and `controller_manager.py` holds what they share.  The command line starts these processes.
"""
