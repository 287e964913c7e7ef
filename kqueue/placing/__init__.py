"""`kqueue place`: a cluster and its requests as one JSON document in, placements out.  No clock, network, environment.

document.py    JSON text to values, with exact numbers and repeated keys kept for the checks
fields.py      one JSON object while it is read: types checked, problems noted under their JSON pointers
parts.py       the parts that several objects share: quantities, tolerations, node affinity, assignments
cluster.py     topology, flavor, nodes and usage
requests.py    algorithm, workload, pod sets and output options
values.py      one placement as core values
case.py        a document becomes one placement
remarks.py     warnings about valid input that is probably a mistake
solving.py     runs the placement of a case
answer.py      the result as JSON
explaining.py  the result for people
picture.py     the topology as a tree with the pods that fit in each domain
drawing.py     trees of domains in a bounded number of lines
joint_*.py     documents with several workloads: case, queues, policies, values, solving, answer, explaining
run.py         from the bytes of an input to answer and exit code
"""
