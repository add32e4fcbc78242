//! Devices, looked at for safety and identity (C6, C7).
