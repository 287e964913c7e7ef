"""What it takes to install the chart where there are no containers.

`kubelet` runs the pods of our namespace as processes, with the arguments, the configuration and the ServiceAccount that
their manifests name; `services` brings the API server to them through their Services; `rights` compares what they asked
for with what they may do; `release` calls helm.
"""
