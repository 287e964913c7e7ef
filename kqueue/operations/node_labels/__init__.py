"""The labels of nodes as a topology reads them: what is odd about them, and which topology they could make.

Pure: what is read from the API server comes in as plain values.  Works without the controller.
"""
