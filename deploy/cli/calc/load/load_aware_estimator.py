"""``slacktide calc load_aware_estimator``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.load.load_aware_case import GivenArgs, GivenFactors, GivenLoadAwarePod, amounts_out
from slacktide.streams.decisions.load.load_aware_estimator import estimate


class Input(Given, frozen=True, kw_only=True):
    """A pod, and the settings of the estimate."""

    estimated_scaling_factors: GivenFactors | None = None
    allow_customize_estimation: bool | None = None
    free_class_enable: bool | None = None
    pod: GivenLoadAwarePod


def calculate(given: Input) -> Calculated:
    """Estimate the use of a pod."""
    args = GivenArgs(
        estimated_scaling_factors=given.estimated_scaling_factors,
        allow_customize_estimation=given.allow_customize_estimation,
        free_class_enable=given.free_class_enable,
    )
    estimated = estimate(given.pod.asked, args.args)
    return Calculated(output=dict(amounts_out(estimated.amounts)), because=estimated.because)
