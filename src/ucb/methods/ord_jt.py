"""ORD-JT: an ordinary net that learns all tasks together, from scratch at each step."""

from __future__ import annotations

from ucb.methods.base import method
from ucb.methods.joint import Joint, JointSettings
from ucb.methods.ordinary import OrdinaryMethod


@method
class OrdinaryJoint(Joint, OrdinaryMethod):
    """Plain stochastic gradient descent on all tasks so far."""

    name = "ord-jt"
    summary = "ordinary joint training on all tasks so far: a bound"
    settings_type = JointSettings
    settings: JointSettings
