{
  "type": "structural_tag",
  "format": {
    "type": "triggered_tags",
    "triggers": ["<function="],
    "tags": [
      {
        "type": "tag",
        "begin": "<function=search>",
        "content": {
          "type": "json_schema",
          "json_schema": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
            "additionalProperties": false
          }
        },
        "end": "</function>"
      },
      {
        "type": "tag",
        "begin": "<function=open>",
        "content": {
          "type": "json_schema",
          "json_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "mode": {"enum": ["read", "write"]}},
            "required": ["path", "mode"],
            "additionalProperties": false
          }
        },
        "end": "</function>"
      }
    ]
  }
}
