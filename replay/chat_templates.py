"""Chat templates, as text: the ones our own small models use and users may switch to.

Both keep every earlier thought of an episode, so both are append-only (see
:mod:`replay.template`).  They know roles and nothing else: no tools, no documents.
"""

from __future__ import annotations

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""Every message as it is between ``<|im_start|>role`` and ``<|im_end|>``."""

QWEN3_THINKING = """\
{%- set ns = namespace(question=-1) %}
{%- for message in messages %}
{%- set is_response = message['content'].startswith('<tool_response>')
    and message['content'].endswith('</tool_response>') %}
{%- if message['role'] == 'user' and not is_response %}
{%- set ns.question = loop.index0 %}
{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message['role'] != 'assistant' %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- else %}
{%- set content = message['content'] %}
{%- set thought = '' %}
{%- if '</think>' in content %}
{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
{%- set content = content.split('</think>')[1:] | join('</think>') %}
{%- set content = content.lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.question %}
{{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
{%- endif %}
{{- content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n<think>\\n' }}
{%- endif %}
"""
"""Like Qwen3's thinking models: the generation prompt opens ``<think>``, thoughts since
the last question are kept, and a user message inside ``<tool_response>`` is no question."""
