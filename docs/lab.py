"""The configuration of JupyterLab in `make lab`.

JupyterLab writes the running Python's version and the kernel's name into a notebook as it opens it, so that every
notebook had unsaved changes before anyone touched it. Here it finds them there already, and they are left out again
as it saves: what is committed is the same on every machine.
"""

from ipykernel.ipkernel import IPythonKernel
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

COMMITTED = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Notebooks(AsyncLargeFileManager):
    """Files as they are, notebooks of the kernel `python3` with what this Python adds to them."""

    async def get(self, *args, **options) -> dict:
        """What JupyterLab opens."""
        model = await super().get(*args, **options)
        metadata = of_python(model)
        if metadata is not None:
            name = KernelSpecManager().get_kernel_spec("python3").display_name
            metadata |= {"kernelspec": COMMITTED | {"display_name": name}, "language_info": IPythonKernel.language_info}
        return model

    async def save(self, model, path="") -> dict:
        """What JupyterLab saves."""
        metadata = of_python(model)
        if metadata is not None:
            metadata["kernelspec"] = COMMITTED
            metadata.get("language_info", {}).pop("version", None)
        return await super().save(model, path)


def of_python(model: dict) -> dict | None:
    """The metadata of a model of the contents API that has a notebook for the kernel `python3`."""
    notebook = model.get("content") if model.get("type") == "notebook" else None
    metadata = notebook["metadata"] if notebook else {}
    return metadata if metadata.get("kernelspec", {}).get("name") == "python3" else None


c = get_config()
c.ServerApp.contents_manager_class = Notebooks
c.LabApp.news_url = None  # asks nothing at the start, and nothing of the network
