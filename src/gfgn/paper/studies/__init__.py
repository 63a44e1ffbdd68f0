"""The paper's studies as YAML files."""
