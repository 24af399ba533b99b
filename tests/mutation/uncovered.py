"""What no checksum covers."""

# No CRC covers these, unless a record has the CRC property: a changed bit in them is simply another value.
UNCOVERED = {
    "flag",
    "sysFlag",
    "bornTimestamp",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "offsetMsgId",
    "msgId",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "properties",
    "tags",
    "keys",
    "tagsCode",
}
