"""`kqueue drain`: take a domain out for maintenance, or for one ClusterQueue."""
