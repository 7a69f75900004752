"""Office-Home: 65 classes in four domains, and a transfer between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from mtlscale.config import knob
from pipelines.domains._domain_folders import DomainFolders

DOMAINS = ("art", "clipart", "product", "real_world")


class OfficeHome(DomainFolders):
    """Office-Home (Venkateswara et al., CVPR 2017): 65 classes, a transfer from a labelled domain to an unlabelled one.

    The task learns from the labels of `domain` and is tested on `target`. The source has the official folders,
    extracted or in their archive: `Art`, `Clipart`, `Product`, `Real World`, and in each `<class>/00001.jpg`. Inputs
    are features of a frozen network, or the pictures for a trainable one.
    """

    name: ClassVar[str] = "office_home"
    results_version: ClassVar[int] = 2  # 2: pictures are turned as their Exif says, transparency is on white
    source: ClassVar[str] = "Venkateswara, Eusebio, Chakraborty & Panchanathan, CVPR 2017"
    folder: ClassVar[str] = "office_home"
    places: ClassVar[Mapping[str, str]] = {
        "art": "Art",
        "clipart": "Clipart",
        "product": "Product",
        "real_world": "Real[ _]?World",
    }
    layout: ClassVar[str] = "'Real World/<class>/*.jpg', Art, Clipart and Product alike"

    domain: str = knob("art", choices=DOMAINS, help="the labelled source")
    target: str = knob("real_world", choices=DOMAINS, help="the target, whose labels test alone has")
