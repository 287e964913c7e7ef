"""The verbs that people know from `kubectl kueue`: create, list, stop, resume, delete, and what kubectl does for us.

One file per verb, each with `register(app)`.  `kinds` knows what kinds may be called, `objects` prints them as `-o`
asks for, `discovery` finds the kinds of others.  Nothing here decides anything: it reads and writes objects.
"""
