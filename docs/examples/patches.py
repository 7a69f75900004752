from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, knob
from mtlscale.data.sampling.splits import hash_split
from pipelines import Pipeline, PrepareContext, Prepared


class Patches(Pipeline):
    """Patches of the two photographs that scikit-learn ships: which photograph, and how far down in it?"""

    name: ClassVar[str] = "patches"
    source: ClassVar[str] = "own example"
    needs_source: ClassVar[bool] = False
    results_version: ClassVar[int] = 1  # raise it when the prepared samples change

    size: int = knob(16, low=4, high=64, help="pixels of height and width")

    def prepare(self, source: Path | None, work: PrepareContext) -> Prepared:
        from sklearn.datasets import load_sample_images

        ids, patches, photos, heights = [], [], [], []
        for photo, pixels in enumerate(load_sample_images().images):  # [height, width, 3], bytes
            for top in range(0, pixels.shape[0] - self.size, self.size):
                for left in range(0, pixels.shape[1] - self.size, self.size):
                    ids.append(f"{photo}/{top:03d}/{left:03d}")
                    patches.append(pixels[top : top + self.size, left : left + self.size].transpose(2, 0, 1).ravel())
                    photos.append(photo)
                    heights.append(top / pixels.shape[0])
        split = np.array([hash_split(i, {"train": 0.6, "val": 0.2, "test": 0.2}) for i in ids])
        shape = (3, self.size, self.size)
        tables = {}
        for part in SPLITS:
            rows = np.flatnonzero(split == part)
            flat = np.stack([patches[row] for row in rows]).ravel()  # uint8: encoders normalise it
            tables[part] = {
                "all": pa.table(
                    {
                        "id": [ids[row] for row in rows],
                        "input": pa.FixedSizeListArray.from_arrays(flat, 3 * self.size**2),
                        "target.photo": np.array(photos, np.int8)[rows],
                        "target.height": np.array(heights, np.float32)[rows],
                    }
                )
            }
        tasks = (
            Task(name="photo", loss="cross_entropy", outputs=2, metrics=("accuracy",), classes=("china", "flower")),
            Task(name="height", loss="mse", outputs=1, metrics=("mae", "rmse")),
        )
        suite = TaskSuite(name=self.name, tasks=tasks, inputs="shared", input_kind="image", input_shape=shape)
        return Prepared(suite, tables)
