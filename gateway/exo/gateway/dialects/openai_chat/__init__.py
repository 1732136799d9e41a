"""OpenAI's Chat Completions, with the extensions that local servers share."""
