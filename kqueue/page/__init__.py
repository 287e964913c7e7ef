"""The page of `kqueue dashboard`: a server of answers, which asks with the rights of its user, and the page itself."""
