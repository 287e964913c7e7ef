"""How we talk to the API server: client, reflector, work queue, controller, election.  Knows no Workload."""
