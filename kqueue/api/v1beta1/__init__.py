"""Version v1beta1 of the kinds of group `kueue.x-k8s.io`: how its schemas differ from those of v1beta2.

One file per kind that has other fields in v1beta1.  A file says the differences only: every schema of v1beta1 is
made from the one of v1beta2, so a field that both versions have is described once.  Fields that Kueue's v1beta1 lacks
stay in the schema, under their names of v1beta2, so that a client of v1beta1 that writes back what it read loses
nothing.

`webhooks/conversion` converts the objects.  Never here: anything that touches an object.
"""
