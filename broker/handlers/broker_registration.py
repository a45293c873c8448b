"""BrokerRegistration: a broker that starts gets its epoch, and stays fenced until it has caught up (KIP-631).

v2: ids of its log directories (KIP-858)
v3: its epoch before a clean shutdown, without which it may have lost records (KIP-966)
v4: features whose minimum is 0 can be listed (KAFKA-17011)
"""

from __future__ import annotations

from tidemark.broker.cluster.broker_membership import SECURITY_PROTOCOLS
from tidemark.broker.controller.controller import Controller
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.image import BrokerImage
from tidemark.broker.metadata.records import Endpoint
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


@handles(BrokerRegistrationRequest, BrokerRegistrationResponse)
async def broker_registration(
    request: BrokerRegistrationRequest, _call: Call, *, controller: Controller
) -> BrokerRegistrationResponse:
    if any(not 0 <= each.security_protocol < len(SECURITY_PROTOCOLS) for each in request.listeners):
        return BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION)
    try:
        epoch = await controller.register(
            _registration(request), previous_epoch=request.previous_broker_epoch, cluster_id=request.cluster_id
        )
    except Refused as refusal:
        return BrokerRegistrationResponse(error_code=refusal.code)
    return BrokerRegistrationResponse(broker_epoch=epoch)


def _registration(request: BrokerRegistrationRequest) -> BrokerImage:
    return BrokerImage(
        broker_id=request.broker_id,
        broker_epoch=-1,
        rack=request.rack,
        endpoints={
            each.name: Endpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=SECURITY_PROTOCOLS[each.security_protocol],
            )
            for each in request.listeners
        },
        incarnation_id=bytes(request.incarnation_id),
        fenced=True,
        features={each.name: (each.min_supported_version, each.max_supported_version) for each in request.features},
        log_dirs=tuple(map(bytes, request.log_dirs)),
    )
