"""What runs inside OpenRLHF's processes, and alone imports OpenRLHF, Ray or vLLM."""
