"""Secure aggregation: sites mask their sums, and the coordinator learns the sum over all of them and nothing else.

The protocol is that of Bonawitz et al. 2017, "Practical Secure Aggregation", with one key pair per site and run, so
that a sum takes two exchanges. docs/decisions/0013-secure-aggregation.md says what differs and why.

1. Each site u adds to its sums, which are integers modulo 2^64, a mask of its own and one for each other site v. The
   mask of a pair follows from a secret that only the two know; u adds it and v subtracts it. Beside the masked sums,
   u sends shares of the seeds of all its masks, encrypted for each of the others.
2. The coordinator says whose sums arrived. The sites return their shares of the own masks of those sites, and of the
   masks of pairs in which one site's sums are missing. A majority of the sites is enough; fewer can do nothing.
"""
