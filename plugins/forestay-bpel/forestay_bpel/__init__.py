"""WS-BPEL 2.0 and JSDL 1.0 for Forestay, with a SOAP interface for other engines; `flow_format` says what it adds."""
