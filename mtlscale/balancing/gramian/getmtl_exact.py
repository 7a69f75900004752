"""GetMTL: gradient trade-offs between tasks, by the paper's equation 10."""

from typing import ClassVar

from mtlscale.balancing.gramian.getmtl import GetMTL


class GetMTLExact(GetMTL):
    """The solution of GetMTL's problem as printed (its eq. 10), with the constraint ‖d - g₀‖ <= ε⟨g₀, d⟩.

    The paper's algorithm solves another problem, `getmtl` (docs/methods.md): directions differ by up to 20° for large
    ε, by less than 0.001° in the published range.
    """

    name: ClassVar[str] = "getmtl_exact"
    source: ClassVar[str] = "Chai et al., ACL 2023, eq. 10"
    exact: ClassVar[bool] = True
