"""The process that has the links: their threads, how they are asked and told, who starts it again."""
