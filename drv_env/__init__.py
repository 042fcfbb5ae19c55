"""drv_env: deep research as a Gymnasium environment."""
