"""Balancers around another balancer, by module: each changes what that one is told, or what it answers."""
