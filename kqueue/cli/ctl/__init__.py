"""The verbs that people know from `kubectl kueue`: create, list, stop, resume, delete, and what kubectl does for us.

One file per verb; `verbs` lists them and imports one when it is called.  `kinds` knows what kinds may be called,
`objects` prints them as `-o` asks for, `discovery` finds the kinds of others.  Nothing here decides anything: it reads
and writes objects.
"""
