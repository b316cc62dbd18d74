"""`triolog edge-demo`: a week without an uplink on a small disk, and what arrives when it comes back."""
