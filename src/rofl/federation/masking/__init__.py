"""Secure aggregation: sites mask their sums, and the coordinator learns the sum over all of them and nothing else.

The protocol is that of Bonawitz et al. 2017, "Practical Secure Aggregation", with one key pair per site and run, so
that a sum takes two exchanges. docs/decisions/0013-secure-aggregation.md explains the differences.

1. Each site u adds its own mask and one mask per other site v to its sums, which are integers modulo 2^64. The mask of
   a pair is derived from a secret that only the two sites know; one of them adds it and the other subtracts it. With
   the masked sums, u sends shares of the seeds of all its masks, encrypted for each of the sites.
2. The coordinator tells the sites whose sums arrived. The sites return their shares of those sites' own masks, and of
   the masks of pairs in which one site's sums are missing. A majority of the sites can unmask the sum; fewer cannot.
"""
