"""Jobs described in JSDL 1.0 (GFD.136): as values, from and to XML elements, and as Forestay job."""
