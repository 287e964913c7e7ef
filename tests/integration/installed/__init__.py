"""An installation of the chart without containers.

`kubelet` runs the pods of our namespace as processes, with the arguments, the configuration and the ServiceAccount that
their manifests name; `services` connects the API server to them through their Services; `rights` compares their
requests with their rights; `release` calls helm.
"""
