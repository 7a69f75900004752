"""Office-31: 31 classes of office objects in three domains, and a transfer between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from mtlscale.config import knob
from pipelines.domains._domain_folders import DomainFolders

DOMAINS = ("amazon", "dslr", "webcam")


class Office31(DomainFolders):
    """Office-31 (Saenko et al., ECCV 2010): 31 classes, a transfer from the labelled domain to the unlabelled `target`.

    The source has the official folders, extracted or in their archive: `<domain>/images/<class>/frame_0001.jpg`;
    `images` may be missing. Inputs are features of a frozen network, or the pictures for a trainable one.
    """

    name: ClassVar[str] = "office31"
    results_version: ClassVar[int] = 2  # 2: pictures are turned as their Exif says, transparency is on white
    source: ClassVar[str] = "Saenko, Kulis, Fritz & Darrell, ECCV 2010"
    folder: ClassVar[str] = "office31"
    places: ClassVar[Mapping[str, str]] = {domain: f"{domain}(?:/images)?" for domain in DOMAINS}
    layout: ClassVar[str] = "<domain>/images/<class>/*.jpg"

    domain: str = knob("amazon", choices=DOMAINS, help="the labelled source")
    target: str = knob("webcam", choices=DOMAINS, help="the target, whose labels test alone has")
