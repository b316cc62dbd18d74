"""UpdateFeatures: the levels of features are what the program speaks; they cannot be changed. Source: FeatureControlManager,
KIP-584, KIP-1022."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.messages.cluster import (
    UpdateFeaturesFeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpdateFeaturesUpdatableFeatureResult,
)
from .api_versions import features_of
from .door import Call

LAST_WITH_RESULTS: Final = 1


def update_features(call: Call, body: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Set all feature levels or none. Only the levels in effect can be set, which changes nothing."""
    features = features_of(call.door.apis)
    for update in body.feature_updates:
        why_not = _why_not(features, update)
        if why_not is not None:
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=f"no feature is updated: {why_not}", results=[]
            )
    results = [
        UpdateFeaturesUpdatableFeatureResult(feature=update.feature, error_message=None)
        for update in body.feature_updates
        if call.version <= LAST_WITH_RESULTS
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _why_not(features: Mapping[str, int], update: UpdateFeaturesFeatureUpdateKey) -> str | None:
    level = features.get(update.feature)
    if level is None:
        return f"there is no feature {update.feature!r}; there are {', '.join(features)}"
    if update.max_version_level != level:
        return f"feature {update.feature} has level {level} and keeps it, {update.max_version_level} was asked for"
    return None
