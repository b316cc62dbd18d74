"""ApiVersions: what is spoken here. UpdateFeatures: the levels of features are what the program speaks, and cannot be changed.
Source: KIP-511, KIP-584, KIP-1022, FeatureControlManager; KAFKA-17492 for features whose lowest level is 0;
KIP-1242 for clients that have reached somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.apis import Api, ApiKey
from ....protocol.kafka.messages import cluster as messages
from .door import Call

LAST_WITH_RESULTS: Final = 1
FEATURES: Final = {
    "group.version": (1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
    "share.version": (1, ApiKey.SHARE_FETCH, 2),
    "streams.version": (1, ApiKey.STREAMS_GROUP_HEARTBEAT, 0),
    "transaction.version": (2, ApiKey.END_TXN, 5),
}
"""The level of each feature, and the API with its version that Kafka has had since that level is in effect by itself. With
transaction.version 2 producing joins a transaction (KIP-890), with share.version 1 there are share groups (KIP-932), with
streams.version 1 Streams groups (KIP-1071)."""
NO_NODE: Final = -1
FIRST_WITH_LOWEST_LEVEL_0: Final = 4
"""Java clients of before 3.9 fail when they meet such a feature in an earlier version."""


def features_of(apis: Mapping[int, Api]) -> dict[str, int]:
    """The level of each feature in effect where these APIs are served: an emulated older release has fewer."""
    return {
        name: level for name, (level, key, version) in FEATURES.items() if (api := apis.get(key)) and api.highest >= version
    }


def api_versions(call: Call, body: messages.ApiVersionsRequest | None) -> messages.ApiVersionsResponse:
    """`body` is None when the request's version is not spoken here: then the answer is one of version 0, from which the
    client learns what is."""
    keys = [
        messages.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest) for api in call.door.apis.values()
    ]
    if body is None:
        keys = [key for key in keys if key.api_key == ApiKey.API_VERSIONS]
        return _response(call, ErrorCode.UNSUPPORTED_VERSION, keys, with_levels_from_0=False)
    if (error := _misrouted(call, body)) is not None:
        return _response(call, error, [], with_levels_from_0=False)
    if body.client_software_name:
        call.session.software = f"{body.client_software_name} {body.client_software_version}"
    return _response(call, ErrorCode.NONE, keys, with_levels_from_0=call.version >= FIRST_WITH_LOWEST_LEVEL_0)


def _misrouted(call: Call, body: messages.ApiVersionsRequest) -> ErrorCode | None:
    """Why a client that says whom it means to reach is not answered: it says half of it, or means another node."""
    if body.cluster_id is None and body.node_id == NO_NODE:
        return None
    if body.cluster_id is None or body.node_id == NO_NODE:
        return ErrorCode.INVALID_REQUEST
    is_meant = (body.cluster_id, body.node_id) == (call.broker.cluster_id, call.door.node_id)
    return None if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED


def _response(
    call: Call, error: ErrorCode, keys: list[messages.ApiVersion], *, with_levels_from_0: bool
) -> messages.ApiVersionsResponse:
    features = features_of(call.door.apis)
    return messages.ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        supported_features=[
            messages.ApiVersionsSupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in features.items()
            if with_levels_from_0
        ],
        finalized_features_epoch=0,
        finalized_features=[
            messages.ApiVersionsFinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.items()
        ],
        zk_migration_ready=False,
    )


def update_features(call: Call, body: messages.UpdateFeaturesRequest) -> messages.UpdateFeaturesResponse:
    """Set all feature levels or none. Only the levels in effect can be set, which changes nothing."""
    features = features_of(call.door.apis)
    for update in body.feature_updates:
        why_not = _why_not(features, update)
        if why_not is not None:
            raise RequestError(f"no feature is updated: {why_not}", ErrorCode.INVALID_UPDATE_VERSION)
    results = [
        messages.UpdateFeaturesUpdatableFeatureResult(feature=update.feature, error_message=None)
        for update in body.feature_updates
        if call.version <= LAST_WITH_RESULTS
    ]
    return messages.UpdateFeaturesResponse(error_message=None, results=results)


def _why_not(features: Mapping[str, int], update: messages.UpdateFeaturesFeatureUpdateKey) -> str | None:
    level = features.get(update.feature)
    if level is None:
        return f"there is no feature {update.feature!r}; there are {', '.join(features)}"
    if update.max_version_level != level:
        return f"feature {update.feature} has level {level} and keeps it, {update.max_version_level} was asked for"
    return None
