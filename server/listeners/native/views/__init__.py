"""Who answers the calls that show what there is."""
