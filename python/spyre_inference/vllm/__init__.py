"""The vLLM plugin: what the two entry points call, and nothing that needs vLLM or torch to be imported.

``register`` runs in every process of vLLM, twice, while vLLM itself is half imported; ``register_ops`` once, later.
"""

import logging
import os

#: Below "vllm", so that vLLM's own logging configuration applies.
logger = logging.getLogger("vllm.spyre_inference")

#: Why the platform cannot be used; raised when vLLM imports the class REFUSED.
failure: Exception | None = None

PLATFORM = "spyre_inference.vllm.platform.SpyrePlatform"
REFUSED = "spyre_inference.vllm.refused.SpyrePlatform"


def register() -> str:
    """Entry point of ``vllm.platform_plugins``: the name of the platform class.

    Never raises: vLLM would write the exception to its log and run on another platform. What is wrong is logged here,
    and the name returned is that of a class whose import raises it, which vLLM lets through to the user.
    """
    global failure
    try:
        from spyre_inference import _native
        from spyre_inference.vllm import versions

        versions.check_installed()
        _native.build_id()
    except Exception as error:
        if failure is None:
            logger.error("spyre-inference cannot serve vLLM: %s", error)
        failure = error
        return REFUSED
    return PLATFORM


def register_ops() -> None:
    """Entry point of ``vllm.general_plugins``: warns where vLLM went past the platform without a word."""
    from vllm.platforms import current_platform

    if type(current_platform).__module__.startswith(__name__):
        return
    if os.environ.get("VLLM_TARGET_DEVICE", "").lower() == "cpu":
        cause = "VLLM_TARGET_DEVICE=cpu is set, which makes vLLM skip every platform plugin; unset it"
    elif "spyre_inference" not in os.environ.get("VLLM_PLUGINS", "spyre_inference").split(","):
        cause = f"VLLM_PLUGINS={os.environ['VLLM_PLUGINS']} does not name spyre_inference"
    else:
        cause = "another platform was set before the plugins were asked"
    logger.warning("spyre-inference is installed, but vLLM runs on %s: %s", type(current_platform).__qualname__, cause)
